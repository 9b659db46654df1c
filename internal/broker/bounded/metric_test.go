package bounded

import (
	"io"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/yardmaster/yardmaster/test/require"
)

func closedFor(t *testing.T, b Budget) float64 {
	t.Helper()
	var m dto.Metric
	require.NoError(t, ClosedConnections.WithLabelValues(string(b)).Write(&m))
	return m.GetCounter().GetValue()
}

func TestClosedConnectionsAreCountedByBudget(t *testing.T) {
	full := newMemory()
	full.resize("others", 0, tenantMemory)
	full.resize("more", 0, tenantMemory)
	for name, row := range map[string]struct {
		sent   string
		memory *memory
		budget Budget
		want   float64
	}{
		"an announced size":           {"$600000000\r\n", newMemory(), BudgetBytes, 1},
		"no memory for a message":     {"$1000000\r\n", full, BudgetMemory, 1},
		"a reply within all budgets":  {"+OK\r\n", newMemory(), BudgetBytes, 0},
		"a reply of another protocol": {"HTTP/1.1 200 OK\r\n", newMemory(), BudgetBytes, 0},
	} {
		t.Run(name, func(t *testing.T) {
			conn, peer := pipe(newRedisFraming())
			conn.memory = row.memory
			defer conn.Close()
			before := closedFor(t, row.budget)
			go func() { _, _ = io.WriteString(peer, row.sent) }()
			_, err := conn.Read(make([]byte, 100))
			counted := closedFor(t, row.budget) - before
			require.True(t, counted == row.want, "%g connections were counted for %s, want %g; the error is %v", counted, row.budget, row.want, err)
		})
	}
}
