package ports

import (
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

// The number of attempts is several times the number of ports of which the system selects one.
func TestAReservedPortIsNotReservedAgain(t *testing.T) {
	reserved := Reserve(t).Port()
	for range 50_000 {
		port, release, err := reserve()
		require.NoError(t, err)
		require.True(t, port != reserved, "the port was reserved again")
		release()
	}
}
