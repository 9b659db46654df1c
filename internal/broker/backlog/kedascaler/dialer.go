package kedascaler

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/bounded"
)

const (
	maxHeaderBytes = 64 << 10
	// windowBytes bounds the bytes that the scaler may send before they are read.
	windowBytes = 64 << 10
	// replyBudget bounds the bytes that the scaler sends for a reading. Real responses have less than a kilobyte each.
	replyBudget = 256 << 10
)

// scalerDialer connects for gRPC, and conceals the errors of a peer that is not a gRPC server.
type scalerDialer struct {
	credentials *broker.Credentials
	// conn is the last connection, if it has budgets.
	conn     atomic.Pointer[bounded.Conn]
	isDenied atomic.Bool
}

func (d *scalerDialer) options() []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseBytes)), grpc.WithMaxHeaderListSize(maxHeaderBytes),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(), // a proxy would connect to addresses that are denied
		grpc.WithUnaryInterceptor(d.intercept),
	}
	if d.credentials.Dial != nil {
		options = append(options, grpc.WithContextDialer(d.dial))
	}
	return options
}

func (d *scalerDialer) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := d.credentials.Dial(ctx, "tcp", address)
	d.isDenied.Store(errors.Is(err, broker.ErrAddressDenied))
	if budgeted, hasBudgets := conn.(*bounded.Conn); hasBudgets {
		budgeted.RenewManually(replyBudget) // gRPC responds to pings, and each response is a write
		d.conn.Store(budgeted)
	}
	return conn, err
}

// intercept implements grpc.UnaryClientInterceptor. gRPC describes errors of the connection only as text.
func (d *scalerDialer) intercept(
	ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	var header, trailer metadata.MD
	err := invoke(ctx, method, request, reply, connection, append(options, grpc.Header(&header), grpc.Trailer(&trailer))...)
	switch {
	case err == nil || isFromServer(header) || isFromServer(trailer):
		return err
	case d.isDenied.Load():
		return broker.ErrAddressDenied
	}
	return d.credentials.Conceal(err, false)
}

func isFromServer(received metadata.MD) bool {
	contentType := received.Get("content-type")
	return len(contentType) > 0 && strings.HasPrefix(contentType[0], "application/grpc")
}
