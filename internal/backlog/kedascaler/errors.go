package kedascaler

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/yardmaster/yardmaster/internal/broker"
)

var errorClassByCode = map[codes.Code]broker.ErrorClass{
	codes.Unavailable:        broker.ClassUnreachable,
	codes.DeadlineExceeded:   broker.ClassUnreachable,
	codes.Aborted:            broker.ClassUnreachable,
	codes.Canceled:           broker.ClassUnreachable,
	codes.Unauthenticated:    broker.ClassUnauthorized,
	codes.PermissionDenied:   broker.ClassUnauthorized,
	codes.NotFound:           broker.ClassNotFound,
	codes.InvalidArgument:    broker.ClassInvalid,
	codes.FailedPrecondition: broker.ClassInvalid,
	codes.OutOfRange:         broker.ClassInvalid,
	codes.Unimplemented:      broker.ClassInvalid,
	codes.ResourceExhausted:  broker.ClassInvalid, // a response above maxResponseBytes
}

// handshakeFailure is in the message of gRPC when TLS verification fails.
const handshakeFailure = "authentication handshake failed"

// classifyError adds the operation and a class to an error.
func classifyError(operation string, err error) error {
	grpcStatus := status.Convert(err)
	class, known := errorClassByCode[grpcStatus.Code()]
	if !known {
		class = broker.ClassUnknown
	}
	if grpcStatus.Code() == codes.Unavailable && strings.Contains(grpcStatus.Message(), handshakeFailure) {
		class = broker.ClassUnauthorized
	}
	return broker.Errorf(class, "%s: %s: %s", operation, grpcStatus.Code(), truncateMessage(grpcStatus.Message()))
}
