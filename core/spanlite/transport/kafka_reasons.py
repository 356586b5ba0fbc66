"""librdkafka's error names as what spanlite does about them: a bounded reason word, and the remedy for a person."""

from __future__ import annotations

REASONS = {
    "timeout": "not acknowledged within message.timeout.ms, though it may have been stored: send it again",
    "too_large": "larger than message.max.bytes or than the topic allows: never send it again",
    "unknown_topic": "the topic is not there: `spanlite topics create`",
    "auth": "the login failed, or the principal may not write there",
    "tls": "no connection with TLS: wrong authority, wrong host name, expired certificate",
    "rejected": "the broker refuses the batch that it was sent in (a time too far ahead, a policy): try it once alone",
    "neighbour": "sent along with a value that was rejected, and not stored for that: send it again",
    "replicas": "fewer replicas in sync than min.insync.replicas",
    "full": "no room in the local queue for longer than a value may wait",
    "fatal": "the client had to be given up and was made anew; the value may have been stored: send it again",
    "closed": "the producer was closed first",
    "other": "anything else; the log has the words",
}
"""Every reason that `on_delivery` is given, and what it means."""

_REASON_OF = {
    "_MSG_TIMED_OUT": "timeout",
    "_TIMED_OUT": "timeout",
    "_TIMED_OUT_QUEUE": "timeout",
    "REQUEST_TIMED_OUT": "timeout",
    "MSG_SIZE_TOO_LARGE": "too_large",
    "RECORD_LIST_TOO_LARGE": "too_large",
    "INVALID_MSG_SIZE": "too_large",
    "UNKNOWN_TOPIC_OR_PART": "unknown_topic",
    "UNKNOWN_TOPIC_ID": "unknown_topic",
    "TOPIC_EXCEPTION": "unknown_topic",
    "_UNKNOWN_TOPIC": "unknown_topic",
    "_UNKNOWN_PARTITION": "unknown_topic",
    "TOPIC_AUTHORIZATION_FAILED": "auth",
    "CLUSTER_AUTHORIZATION_FAILED": "auth",
    "GROUP_AUTHORIZATION_FAILED": "auth",
    "SASL_AUTHENTICATION_FAILED": "auth",
    "UNSUPPORTED_SASL_MECHANISM": "auth",
    "ILLEGAL_SASL_STATE": "auth",
    "_AUTHENTICATION": "auth",
    "_SSL": "tls",
    "INVALID_MSG": "rejected",
    "INVALID_RECORD": "rejected",
    "INVALID_TIMESTAMP": "rejected",
    "POLICY_VIOLATION": "rejected",
    "_INVALID_DIFFERENT_RECORD": "neighbour",
    "NOT_ENOUGH_REPLICAS": "replicas",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "replicas",
    "_QUEUE_FULL": "full",
    "_PURGE_QUEUE": "fatal",
    "_PURGE_INFLIGHT": "fatal",
    "_FATAL": "fatal",
    "_FENCED": "fatal",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "fatal",
    "UNKNOWN_PRODUCER_ID": "fatal",
    "INVALID_PRODUCER_EPOCH": "fatal",
    "PRODUCER_FENCED": "fatal",
}

_REMEDIES = {
    "unknown_topic": "make it with `spanlite topics create`",
    "auth": "check sasl.username and sasl.password, and give the principal its ACLs (docs/kafka.md)",
    "tls": (
        "check ssl.ca.location, that the broker's certificate is valid and names the host, and where it wants the "
        "client's, ssl.certificate.location and ssl.key.location"
    ),
    "replicas": "bring brokers back, or lower min.insync.replicas",
}


def reason_of(name: str, text: str = "") -> str:
    """The reason word for librdkafka's error name, such as `_MSG_TIMED_OUT`, and the words that came with it."""
    # The broker hangs up on our certificate, or a connection is lost over its: to librdkafka both may be _TRANSPORT.
    if "SSL alert number" in text or "certificate verify failed" in text:
        return "tls"
    return _REASON_OF.get(name, "other")


def needs_a_person(reason: str) -> bool:
    """Whether what is wrong stays until somebody changes the topic, the ACLs or the login."""
    return reason in ("unknown_topic", "auth")


def remedy(reason: str) -> str:
    """What to do about what stays."""
    return _REMEDIES.get(reason, "see docs/kafka.md")
