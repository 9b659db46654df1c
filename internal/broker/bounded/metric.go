package bounded

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Budget is a budget of a connection, as a label of the metric.
type Budget string

// The budgets.
const (
	BudgetBytes  Budget = "bytes"
	BudgetTime   Budget = "time"
	BudgetMemory Budget = "memory"
)

// ClosedConnections counts the closed connections of this process. It is in no registry, because programs of others use this
// package too.
var ClosedConnections = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "yardmaster_broker_closed_connections_total",
	Help: "Connections to brokers and backlog sources that were closed because the server exceeded a budget, by budget: bytes, time or memory.",
}, []string{"budget"})

// CountClosed counts a connection that was closed because the server exceeded a budget.
func CountClosed(b Budget) { ClosedConnections.WithLabelValues(string(b)).Inc() }

// closeFor closes the connection because of an error, and counts it if the error is an exceeded budget.
func (c *Conn) closeFor(err error) {
	switch {
	case errors.Is(err, errReplyTooLong):
		CountClosed(BudgetBytes)
	case errors.Is(err, errTooSlow):
		CountClosed(BudgetTime)
	case errors.Is(err, errNoMemory):
		CountClosed(BudgetMemory)
	}
	_ = c.Close()
}
