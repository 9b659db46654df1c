package bounded

import (
	"errors"

	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

// Budget is a budget of a connection, as a label of the metric.
type Budget string

// The budgets.
const (
	BudgetBytes  Budget = "bytes"
	BudgetTime   Budget = "time"
	BudgetMemory Budget = "memory"
)

var closed = metric.NewCounterVec("yardmaster_broker_closed_connections_total",
	"Connections to brokers and backlog sources that were closed because the server exceeded a budget, by budget: bytes, time or memory.", "budget")

// CountClosed counts a connection that was closed because the server exceeded a budget.
func CountClosed(b Budget) { closed.WithLabelValues(string(b)).Inc() }

// closeFor closes the connection because of an error, and counts it if that is an exceeded budget.
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
