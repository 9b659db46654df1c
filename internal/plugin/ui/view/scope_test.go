package view

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/yardmaster/yardmaster/test/require"
)

func TestReportsReadTheNamespacesAndLabelsOfThePages(t *testing.T) {
	team, err := labels.Parse("team in (data,web)")
	require.NoError(t, err)
	report := []string{"report", "--output=json", "--fail-on=never"}
	with := func(flags ...string) []string { return append(append([]string{}, report...), flags...) }
	for want, row := range map[string]struct {
		scope    Scope
		commands [][]string
	}{
		"all namespaces": {Scope{Selector: labels.Everything()}, [][]string{with("--all-namespaces")}},
		"namespace a":    {Scope{Namespaces: []string{"a"}}, [][]string{with("--namespace=a")}},
		"namespaces a, b, labels team in (data,web)": {Scope{[]string{"a", "b"}, team}, [][]string{with("--namespace=a", "--selector=team in (data,web)"), with("--namespace=b", "--selector=team in (data,web)")}},
		"all namespaces, labels team in (data,web)":  {Scope{Selector: team}, [][]string{with("--all-namespaces", "--selector=team in (data,web)")}},
	} {
		t.Run(want, func(t *testing.T) {
			require.Equal(t, want, row.scope.String())
			require.Equal(t, row.commands, StaleCommands(&row.scope))
		})
	}
}

func TestStateOfAKindIsThatOfAllItsNamespaces(t *testing.T) {
	synced, loading := WatchState{Synced: true}, WatchState{}
	denied := WatchState{Denied: true, Problem: "not permitted to list queues in namespace b"}
	lost := WatchState{Synced: true, Problem: "connection lost", Lost: testTime}
	for title, row := range map[string]struct {
		states []WatchState
		want   WatchState
	}{
		"all read":                {[]WatchState{synced, synced}, synced},
		"one still loads":         {[]WatchState{synced, loading}, loading},
		"one is denied":           {[]WatchState{synced, denied}, WatchState{Synced: true, Problem: denied.Problem}},
		"all are denied":          {[]WatchState{denied, denied}, WatchState{Synced: true, Denied: true, Problem: denied.Problem}},
		"the connection was lost": {[]WatchState{synced, lost}, lost},
		"only one, as it is":      {[]WatchState{denied}, denied},
	} {
		t.Run(title, func(t *testing.T) {
			require.Equal(t, row.want, MergeStates(row.states))
		})
	}
}
