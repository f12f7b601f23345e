"""Where the plugin of the runtime lies."""


def libneuronpjrt_path() -> str:
    """A path to nothing: no test opens a device."""
    return "/nonexistent/libneuronpjrt.so"
