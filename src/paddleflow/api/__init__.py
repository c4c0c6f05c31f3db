"""REST: routes, and the thin path between a socket and a transaction.

A route is a value (`routing.Route`), a route module a tuple of them called ``ROUTES``, and `application.build` turns the
tuples into one ASGI callable. The same table gives dispatch, OpenAPI and metrics, so none of the three can differ from
the others. ``docs/internals/rest.md`` has the conventions and the checklist for adding a route.
"""
