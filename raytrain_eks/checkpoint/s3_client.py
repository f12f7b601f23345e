"""The boto3 client, and one request that is tried again after what may pass.

boto3 and not pyarrow's S3FileSystem, since that one cannot write conditionally (`If-None-Match: *`), and fencing
stands on it. Region, credentials and AWS_ENDPOINT_URL are found the way every AWS tool finds them; with
AWS_S3_ANONYMOUS=1 requests are not signed.
"""

import errno
import os
import random
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

Result = TypeVar("Result")

PARALLEL = 8
"""Requests in flight for one file."""
ATTEMPTS = 7
"""Tries of one request."""
FIRST_PAUSE = 0.2
"""Seconds: waits of up to 0.2, 0.4, ... 6.4 s lie between tries, with full jitter (AWS Architecture Blog, "Exponential
Backoff And Jitter", 2015)."""
_MISSING = {"NoSuchKey", "NoSuchBucket", "404", "NotFound"}
_TAKEN = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
_FINAL = {"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidRange", "InvalidBucketName"}
_FINAL |= {"ExpiredToken", "InvalidToken", "EntityTooLarge", "NoSuchUpload", "MethodNotAllowed"}


@lru_cache(maxsize=8)
def _client(endpoint: str | None, anonymous: bool, process: int) -> Any:
    """One client per endpoint and process (a client must not cross a fork)."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(
        # Retries are ours: botocore would not retry a body that breaks off, and two layers of waiting add up.
        retries={"total_max_attempts": 1},
        connect_timeout=10,
        read_timeout=60,
        max_pool_connections=4 * PARALLEL,
        signature_version=UNSIGNED if anonymous else "s3v4",
    )
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None
    session = boto3.session.Session()
    return session.client("s3", config=config, endpoint_url=endpoint, region_name=region or session.region_name)


def client() -> Any:
    """The boto3 client of this process for the endpoint and the credentials of its environment."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
    return _client(endpoint, os.environ.get("AWS_S3_ANONYMOUS") == "1", os.getpid())


def _code(error: Exception) -> str:
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def retrying(call: Callable[[], Result], place: str, attempts: int | None = None) -> Result:
    """`call()`, tried again after what may pass: 5xx, SlowDown, time-outs, reset connections, bodies that break off.

    Raises FileNotFoundError for a missing object, PermissionError for a refusal, FileExistsError when a condition
    did not hold, and otherwise OSError(EIO) with the last reason once all attempts are spent.
    """
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError
    from urllib3.exceptions import HTTPError

    attempts = attempts or ATTEMPTS
    for attempt in range(attempts):
        try:
            return call()
        except ClientError as error:
            code = _code(error)
            if code in _MISSING:
                raise FileNotFoundError(errno.ENOENT, "no such object", place) from None
            # 409 says that another conditional write is under way: it has to be tried again to know who won.
            if code in _TAKEN and code not in ("ConditionalRequestConflict", "409"):
                raise FileExistsError(errno.EEXIST, "already there", place) from None
            if code in _FINAL:
                raise PermissionError(errno.EACCES, f"S3 answers {code}", place) from None
            reason: str = f"S3 answers {code}"
        except NoCredentialsError as error:
            raise PermissionError(errno.EACCES, str(error), place) from None
        except (HTTPClientError, HTTPError, BotoCoreError, OSError) as error:
            if isinstance(error, FileNotFoundError | PermissionError | FileExistsError):
                raise
            reason = f"{type(error).__name__}: {error}"
        if attempt + 1 < attempts:
            time.sleep(random.uniform(0, FIRST_PAUSE * 2**attempt))
    raise OSError(errno.EIO, f"{reason} (tried {attempts} times)", place)
