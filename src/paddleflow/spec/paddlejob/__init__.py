"""The PaddleJob (``batch.paddlepaddle.org/v1``, short name ``pdj``): the document, its status, and the CRD made of both.

`model` is what people write, `status` what the operator answers, `crd` the definition that an API server gets. There is one
truth: the CRD is generated from the models, and the operator reads jobs with the same models.
"""
