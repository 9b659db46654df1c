package kedascaler

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/yardmaster/yardmaster/internal/broker"
)

var classes = map[codes.Code]broker.ErrorClass{
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
	codes.ResourceExhausted:  broker.ClassInvalid, // an answer that is too long
}

// distrust is what gRPC says when one side does not trust the other.
const distrust = "authentication handshake failed"

// classify gives an error its class, and tells what was being done.
func classify(doing string, err error) error {
	said := status.Convert(err)
	class, known := classes[said.Code()]
	if !known {
		class = broker.ClassUnknown
	}
	if said.Code() == codes.Unavailable && strings.Contains(said.Message(), distrust) {
		class = broker.ClassUnauthorized
	}
	return broker.Errorf(class, "%s: %s: %s", doing, said.Code(), printable(said.Message()))
}
