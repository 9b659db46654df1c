package verify

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJudge(t *testing.T) {
	for name, row := range map[string]struct {
		ledger string
		want   Verdict
		once   bool
	}{
		"each once":                       {"a-000000 p1 r1 1\na-000001 p2 r2 1\n", Verdict{Sent: 2, Done: 2, Workers: 2, Revisions: 2}, true},
		"one lost":                        {"a-000001 p1 r1 1\n", Verdict{Sent: 2, Done: 1, Lost: []string{"a-000000"}, Workers: 1, Revisions: 1}, false},
		"one twice":                       {"a-000000 p1 r1 1\na-000001 p1 r1 1\na-000000 p2 r1 2\n", Verdict{Sent: 2, Done: 2, Repeated: 1, Workers: 2, Revisions: 1}, false},
		"one that nobody sent":            {"a-000000 p1 r1 1\na-000001 p1 r1 1\na-000002 p1 r1 1\n", Verdict{Sent: 2, Done: 2, Strange: []string{"a-000002"}, Workers: 1, Revisions: 1}, false},
		"another run's are not looked at": {"a-000000 p1 r1 1\nb-000000 p9 r9 1\na-000001 p1 r1 1\n", Verdict{Sent: 2, Done: 2, Workers: 1, Revisions: 1}, true},
		"nothing":                         {"", Verdict{Sent: 2, Lost: []string{"a-000000", "a-000001"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Judge(strings.NewReader(row.ledger), "a", 2)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if got.OnceEach() != row.once {
				t.Errorf("each once: %t", got.OnceEach())
			}
		})
	}
}
