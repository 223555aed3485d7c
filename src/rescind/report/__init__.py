"""One self-contained HTML file about a run: for the officer without private numbers, for the operator with them."""

from rescind.report.page import render_report

__all__ = ["render_report"]
