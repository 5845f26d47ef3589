"""Says what the library logs, by topic."""

import torch

LEVELS = ("debug", "info", "warning", "error", "off")


def set_logs(topics: str = "", **levels: str | bool) -> None:
    """Sets the levels of log topics.

        aten_recompute.set_logs(plan="debug", memory="off")
        aten_recompute.set_logs("+plan,-memory")  # the same
        aten_recompute.set_logs()                 # as the environment variables say

    The topics are ``plan``, ``breaks``, ``specialize``, ``memory``, ``rules``, ``profile`` and ``paths``, and ``all``
    (docs/debugging.md). Topics that are not named keep their levels. The environment variable ``RECOMPUTE_LOGS`` has
    the form of ``topics``; ``RECOMPUTE_LOG_LEVEL`` is the level of topics that neither names.

    Args:
        topics: names of topics, separated by commas: a name alone logs what INFO does, with ``+`` what DEBUG does, with
            ``-`` nothing.
        **levels: for each topic ``"debug"``, ``"info"``, ``"warning"``, ``"error"`` or ``"off"``. True stands for
            ``"info"`` and False for ``"off"``.

    Raises:
        ValueError: there is no such topic or level; the message, one line, lists them. Nothing changes then.
        TypeError: a level is no text.
    """
    parts = [topics]
    for topic, level in levels.items():
        if not isinstance(level, str | bool):
            raise TypeError(f"set_logs: {topic}: a level is one of {', '.join(LEVELS)}, not {type(level).__name__}")
        parts.append(f"{topic}={level if isinstance(level, str) else 'info' if level else 'off'}")
    try:
        torch.ops.aten_recompute.set_logs(",".join(part for part in parts if part))
    except (RuntimeError, ValueError) as error:
        message = str(error).splitlines()[0]
    else:
        return
    raise ValueError(f"set_logs: {message}")
