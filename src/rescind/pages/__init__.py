"""Everything that is shown as HTML: a certificate, and a run. One style, one way to escape."""
