package verify

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestLedgerIsVerified(t *testing.T) {
	for name, row := range map[string]struct {
		ledger string
		want   LedgerResult
		once   bool
	}{
		"each job done once":        {"a-000000 p1 r1 1\na-000001 p2 r2 1\n", LedgerResult{Sent: 2, Done: 2, Workers: 2, Revisions: 2}, true},
		"one job lost":              {"a-000001 p1 r1 1\n", LedgerResult{Sent: 2, Done: 1, Lost: []string{"a-000000"}, Workers: 1, Revisions: 1}, false},
		"one job repeated":          {"a-000000 p1 r1 1\na-000001 p1 r1 1\na-000000 p2 r1 2\n", LedgerResult{Sent: 2, Done: 2, Repeated: 1, Repetitions: []string{"a-000000 p2 r1 2"}, Workers: 2, Revisions: 1}, false},
		"one job that was not sent": {"a-000000 p1 r1 1\na-000001 p1 r1 1\na-000002 p1 r1 1\n", LedgerResult{Sent: 2, Done: 2, Unexpected: []string{"a-000002"}, Workers: 1, Revisions: 1}, false},
		"attempts that failed": {
			"a-000000 p1 r1 1 failed\na-000000 p1 r1 2 done\na-000001 p1 r1 1 aborted\na-000001 p1 r1 2 aborted\na-000001 p1 r1 3 done\n",
			LedgerResult{Sent: 2, Done: 2, Unsuccessful: map[string]int{"failed": 1, "aborted": 2}, Workers: 1, Revisions: 1},
			true,
		},
		"only a failed attempt": {"a-000000 p1 r1 1 failed\na-000001 p1 r1 1 done\n", LedgerResult{Sent: 2, Done: 1, Unsuccessful: map[string]int{"failed": 1}, Lost: []string{"a-000000"}, Workers: 1, Revisions: 1}, false},
		"lines of another run":  {"a-000000 p1 r1 1\nb-000000 p9 r9 1\na-000001 p1 r1 1\n", LedgerResult{Sent: 2, Done: 2, Workers: 1, Revisions: 1}, true},
		"empty ledger":          {"", LedgerResult{Sent: 2, Lost: []string{"a-000000", "a-000001"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := CheckLedger(strings.NewReader(row.ledger), "a", 2)
			require.NoError(t, err)
			require.Equal(t, row.want, got, cmpopts.EquateEmpty())
			require.Equal(t, row.once, got.EachDoneOnce())
		})
	}
}
