"""Boards, host link and drivers. Empty until the first board lands; see the README."""
