package backlog

import (
	"context"
	"math"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Source reads the backlog of a queue that Yardmaster does not manage. Its methods are safe for concurrent use, and its errors have a
// class.
type Source interface {
	Read(ctx context.Context) (Reading, error)
	Disconnect()
}

// Reading is the state of a queue at MeasuredTime.
type Reading struct {
	// Backlog is the number of messages waiting for a worker.
	Backlog int64
	// InFlight is the number of messages delivered and not yet acknowledged; nil if unknown.
	InFlight *int64
	// InFlightMayWait is true if messages of InFlight may wait: in a worker that received them before it can handle them, or for another
	// delivery.
	InFlightMayWait bool
	// TotalArrivals is the number of messages ever received; nil if unknown. It decreases when the source restarts its counter.
	TotalArrivals *uint64
	// BacklogPerReplica is the target of the source, in messages per worker; 0 if the source has no target.
	BacklogPerReplica float64
	MeasuredTime      time.Time
}

// maxMessageCount is more than any queue contains, and far from an overflow.
const maxMessageCount = 1 << 53

// MessageCount converts a number reported by a source, and rounds fractions up. The description of the number appears in errors.
func MessageCount(description string, value float64) (int64, error) {
	switch {
	case math.IsNaN(value):
		return 0, broker.Errorf(broker.ClassInvalid, "%s is NaN, must be a number", description)
	case value < 0 || value > maxMessageCount:
		return 0, broker.Errorf(broker.ClassInvalid, "%s is %g, must be 0 to %d", description, value, int64(maxMessageCount))
	}
	return int64(math.Ceil(value)), nil
}
