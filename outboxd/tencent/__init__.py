"""Tencent IM's REST API: what is asked, how it is signed, and what the answers mean. Pure, no I/O."""
