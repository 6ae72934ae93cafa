"""Protobuf messages: the .proto files, and `descriptors.binpb`, which protoc writes from them:

    python -m grpc_tools.protoc -I outboxd/proto --include_imports \
        --descriptor_set_out=outboxd/proto/descriptors.binpb room_events.proto status.proto
"""
