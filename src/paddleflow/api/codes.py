"""Which HTTP status a code comes with, for the description of the API.

The status that is really sent is that of the error's class (`paddleflow.errors`); this table says what a bare code in
`Route.errors` stands for. A route whose code comes with another status writes it out: ``"409 SomeCode"``. The API tests
compare every refusal they meet with what its route declares.
"""

from __future__ import annotations

_BY_STATUS: dict[int, str] = {
    400: """
        InappropriateJSON InvalidHTTPRequest InvalidURI MalformedJSON MalformedYaml InvalidPipeline FileTypeNotSupported
        InvalidNamePattern RequestExpired InvalidMarker InvalidScaleResource InvalidArguments RequiredFieldEmpty
        UserPasswordWeak QueueActionIsNotSupported QueueQuotaTypeIsNotSupported QueueResourceNotMatch QueueInvalidField
        QueueUpdateFailed GrantResourceTypeNotFound GrantRootActionNotSupport ReadYamlFileFailed FlavourNameEmpty
        FlavourInvalidField JobInvalidField JobCreateFailed InvalidClusterProperties InvalidClusterCredential
        InvalidClusterStatus InvalidFileSystemParamsURL InvalidFileSystemParamsProperties InvalidFileSystemMaxKeys
        InvalidFileSystemFsName FileSystemNameFormatError InvalidLinkURL InvalidLinkProperties InvalidState
        ConnectivityFailed InvalidPVClaimsParams InvalidComputeResource
    """,
    401: "AuthWithoutToken AuthInvalidToken AuthFailed",
    403: "AccessDenied OnlyRootAllowed AuthIllegalUser UserNameDuplicated QueueNameDuplicated",
    404: """
        PathNotFound InvalidVersion RecordNotFound ResourceNotFound RunNotFound PipelineNotFound RunCacheNotFound
        ArtifactEventNotFound ScheduleNotFound FlavourNotFound JobNotFound UserNotExist QueueNameNotFound GrantNotFound
        ClusterNameNotFound ClusterIdNotFound ClusterNotFound FileSystemNotExist LinkNotExist NamespaceNotFound
        LinkFileSystemNotExist LinkFileSystemPathNotExist CPUNotFound MemoryNotFound
    """,
    405: "MethodNotAllowed",
    409: """
        ActionNotAllowed DuplicatedName DuplicatedContent QueueIsNotClosed QueueIsInUse GrantAlreadyExist
        RunNameDuplicated FileSystemClientBusy LinkPathExist LinkPathMustBeEmpty
    """,
    500: "InternalError IOOperationFailure FileSystemDataBaseError",
}

STATUS: dict[str, int] = {code: status for status, codes in _BY_STATUS.items() for code in codes.split()}


def declared(error: str) -> tuple[int, str]:
    """(status, code) of an entry of `Route.errors`; ValueError when nothing says the status."""
    status, space, code = error.partition(" ")
    if space:
        return int(status), code
    if error not in STATUS:
        raise ValueError(f"the status of the code {error} is not known: declare it as '409 {error}'")
    return STATUS[error], error
