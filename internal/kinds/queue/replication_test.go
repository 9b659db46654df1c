package queue

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/test/require"
)

func storedAs(state broker.StorageState) func(*Observation) {
	return func(o *Observation) { o.EnsureResult.Storage = &state }
}

func TestReplicatedIsTrueOnlyIfSeveralServersHaveAllMessages(t *testing.T) {
	type storage = broker.StorageState
	for name, row := range map[string]struct {
		state     storage
		replicas  int32
		want      string
		wantText  string
		wantReady string
	}{
		"three replicas":                      {storage{Replicas: 3, CurrentReplicas: 3}, 0, "True FullyReplicated", "3 servers have all messages", ""},
		"more than by default":                {storage{Replicas: 5, CurrentReplicas: 5}, 0, "True FullyReplicated", "", ""},
		"the broker refuses more than enough": {storage{Replicas: 3, CurrentReplicas: 3, Refusal: "no peers"}, 0, "True FullyReplicated", "", ""},
		"the broker refuses the default": {
			storage{Replicas: 1, CurrentReplicas: 1, Refusal: "no peers"}, 0, "False ReplicasRefused", "1 of 3 replicas: no peers", "",
		},
		"the broker refuses the spec": {
			storage{Replicas: 3, CurrentReplicas: 3, Refusal: "no peers", RefusesConfig: true},
			5,
			"False ReplicasRefused", "3 of 5 replicas: no peers", "False RefusedByBroker",
		},
		"nothing adds replicas":                     {storage{Replicas: 1, CurrentReplicas: 1}, 0, "False ReplicasMissing", "drift is Warn", ""},
		"one replica by choice":                     {storage{Replicas: 1, CurrentReplicas: 1}, 1, "False SingleReplica", "lost with its server", ""},
		"a move before more replicas":               {storage{Replicas: 1, CurrentReplicas: 1, IsMoving: true}, 0, "False CatchingUp", "", ""},
		"new replicas":                              {storage{Replicas: 3, CurrentReplicas: 1}, 0, "False CatchingUp", "1 of 3 replicas have all messages", ""},
		"a server is offline":                       {storage{Replicas: 3, CurrentReplicas: 2, OfflineReplicas: 1}, 0, "False ReplicasOffline", "2 of 3 replicas are online", ""},
		"a broker that reports no replicas":         {storage{}, 0, "Unknown Pending", "", ""},
		"a broker that reports no current replicas": {storage{Replicas: 3}, 0, "Unknown Pending", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed(storedAs(row.state))
			if row.replicas > 0 {
				o.Queue.Spec.Storage = &v1alpha1.QueueStorage{Replicas: &row.replicas}
			}
			s := Decide(o).Status
			require.Equal(t, row.want, conditionStates(&s)[v1alpha1.ConditionReplicated])
			require.Contains(t, findCondition(&s, v1alpha1.ConditionReplicated).Message, row.wantText)
			ready := findCondition(&s, v1alpha1.ConditionReady)
			got := conditionStates(&s)[v1alpha1.ConditionReady]
			require.True(t, row.wantReady == "" || got == row.wantReady, "Ready is %s, want %s", got, row.wantReady)
			claimsSafety := ready.Status == metav1.ConditionTrue && !strings.Contains(ready.Message, "not fully replicated")
			require.True(t, !strings.HasPrefix(row.want, "False") || !claimsSafety, "Ready does not mention the replicas: %s", ready.Message)
		})
	}
}

func TestReplicasThatCatchUpAreReadAgainSoon(t *testing.T) {
	for name, row := range map[string]struct {
		state broker.StorageState
		want  bool
	}{
		"all are current":        {broker.StorageState{Replicas: 3, CurrentReplicas: 3}, false},
		"one replica, refused":   {broker.StorageState{Replicas: 1, CurrentReplicas: 1, Refusal: "no"}, false},
		"a replica is behind":    {broker.StorageState{Replicas: 3, CurrentReplicas: 2}, true},
		"the queue moves":        {broker.StorageState{Replicas: 1, CurrentReplicas: 1, IsMoving: true}, true},
		"the number is unknown":  {broker.StorageState{Replicas: 3}, true},
		"nothing is known of it": {broker.StorageState{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := observed()
			o.applyEnsured(broker.EnsureResult{Storage: &row.state})
			for i := range 100 { // an idle queue is read once a minute
				o.History.Stats = o.History.Stats.add(statsAt(float64(i), 0, 0, 0, 0))
			}
			o.Rescued, o.Stats = true, statsAt(100, 0, 0, 0, 0)
			d := Decide(o)
			soon := d.RequeueAfter <= unfinishedInterval && !o.History.Comparison.Expires.After(noon.Add(2*unfinishedInterval))
			require.True(t, soon == row.want, "again after %s, compared again at %s", d.RequeueAfter, o.History.Comparison.Expires)
		})
	}
}
