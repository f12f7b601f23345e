"""A live view of a run in a notebook: its status and loss, drawn again and again by a thread until the run is over.

With ipywidgets it is a widget that changes in place; without it, what a notebook shows of the run itself. A thread of
this module writes into the widget's value only: nothing goes to standard output, so no other cell gets it.
"""

import threading
from typing import TYPE_CHECKING, Any

from raytrain_eks.submit.errors import TargetError

if TYPE_CHECKING:
    from raytrain_eks.api.run import Run


class View:
    """What `Run.watch()` returns: shown by a notebook as the last value of a cell."""

    def __init__(self, run: "Run", widget: Any, *, every: float):
        self.run, self.widget = run, widget
        self._every, self._stop = every, threading.Event()
        self._thread = threading.Thread(target=self._draw, name=f"watch {run.name}", daemon=True)

    def stop(self) -> None:
        """No longer look at the run, which goes on."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the view is at its last picture, waiting for it for `timeout` seconds at most."""
        if self.widget is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _draw(self) -> None:
        from raytrain_eks.api.run import OVER

        while True:
            try:
                over = self.run.status().state in OVER
            except TargetError:
                over = False
            self.widget.value = self.run._repr_html_()
            if over or self._stop.wait(self._every):
                return

    def _repr_mimebundle_(self, **options: Any) -> Any:
        if self.widget is None:
            return {"text/plain": repr(self.run), "text/html": self.run._repr_html_()}
        return self.widget._repr_mimebundle_(**options)


def view(run: "Run", *, every: float) -> View:
    """The view, already looking at the run where it can change."""
    try:
        from ipywidgets import HTML
    except ImportError:
        return View(run, None, every=every)
    found = View(run, HTML(), every=every)
    found._thread.start()
    return found
