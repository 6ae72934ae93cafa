"""The role that carries events from a message queue on to Tencent IM."""
