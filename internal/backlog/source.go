package backlog

import (
	"context"
	"math"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// Source can be asked how much waits. All its methods may be called at the same time, and
// its errors have a class.
type Source interface {
	Read(ctx context.Context) (Reading, error)
	// Disconnect ends the connection.
	Disconnect()
}

// Reading is how much there is to do.
type Reading struct {
	// Waiting messages have not been begun.
	Waiting int64
	// InFlight messages are being worked on; nil if the source does not know.
	InFlight *int64
	// Arrivals counts messages since ever; nil if the source does not. A counter that went
	// back has begun anew.
	Arrivals *uint64
	// At is when this was so.
	At time.Time
}

// most is more than any queue has, and far from where numbers overflow.
const most = 1 << 53

// Count makes a count of messages of a number that a source has told. A part of a message
// is one: it is work for somebody.
func Count(what string, value float64) (int64, error) {
	switch {
	case math.IsNaN(value):
		return 0, broker.Errorf(broker.ClassInvalid, "%s is not a number", what)
	case value < 0 || value > most:
		return 0, broker.Errorf(broker.ClassInvalid, "%s is %g, must be 0 to %d", what, value, int64(most))
	}
	return int64(math.Ceil(value)), nil
}
