package bounded

import "sync"

const (
	// totalMemory is for messages that are arriving, over all connections.
	totalMemory = 24 << 20
	// tenantMemory is the part of it that one tenant can use.
	tenantMemory = 12 << 20
)

// memory is a budget of bytes that connections share.
type memory struct {
	mu    sync.Mutex
	total int64
	used  map[string]int64 // by tenant
}

func newMemory() *memory { return &memory{used: map[string]int64{}} }

// resize changes a reservation. It reports false, and changes nothing, if that exceeds the budget.
func (m *memory) resize(tenant string, from, to int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	change := to - from
	if change > 0 && (m.total+change > totalMemory || m.used[tenant]+change > tenantMemory) {
		return false
	}
	m.total += change
	if m.used[tenant] += change; m.used[tenant] == 0 {
		delete(m.used, tenant)
	}
	return true
}
