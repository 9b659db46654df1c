package kedascaler

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/yardmaster/yardmaster/internal/broker"
)

var classes = map[codes.Code]broker.Class{
	codes.Unavailable:        broker.Unreachable,
	codes.DeadlineExceeded:   broker.Unreachable,
	codes.Aborted:            broker.Unreachable,
	codes.Canceled:           broker.Unreachable,
	codes.Unauthenticated:    broker.Unauthorised,
	codes.PermissionDenied:   broker.Unauthorised,
	codes.NotFound:           broker.Missing,
	codes.InvalidArgument:    broker.Invalid,
	codes.FailedPrecondition: broker.Invalid,
	codes.OutOfRange:         broker.Invalid,
	codes.Unimplemented:      broker.Invalid,
	codes.ResourceExhausted:  broker.Invalid, // an answer that is too long
}

// distrust is what gRPC says when one side does not trust the other.
const distrust = "authentication handshake failed"

// classify gives an error its class, and tells what was being done.
func classify(doing string, err error) error {
	said := status.Convert(err)
	class, known := classes[said.Code()]
	if !known {
		class = broker.Unknown
	}
	if said.Code() == codes.Unavailable && strings.Contains(said.Message(), distrust) {
		class = broker.Unauthorised
	}
	return broker.Fail(class, "%s: %s: %s", doing, said.Code(), printable(said.Message()))
}
