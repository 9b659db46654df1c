package queue

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/decision"
)

// unfinishedInterval is when to compare a queue again while its replicas catch up or are offline.
const unfinishedInterval = 15 * time.Second

// refusesStorage reports whether the broker refuses to store the queue as specified.
func refusesStorage(result *broker.EnsureResult) bool {
	return result != nil && result.Storage != nil && result.Storage.RefusesConfig
}

var unreportedReplicas = decision.Problem{
	Reason: v1alpha1.ReasonPending, Message: "The broker does not report which replicas have all messages",
}

// replicated returns False if losing one server can lose messages of the queue.
func replicated(in *conditionInput) decision.State {
	problem := in.unreachable()
	switch {
	case problem != nil:
		return isUnknown(*problem)
	case in.BrokerError != nil:
		refused := configSynced(in)
		return isUnknown(decision.Problem{Reason: refused.Reason, Message: refused.Message})
	case in.result == nil:
		return isUnknown(notObserved)
	case in.result.Storage == nil:
		return isUnknown(decision.Problem{Reason: v1alpha1.ReasonUnsupported, Message: "The engine does not report replicas"})
	}
	state, wanted := in.result.Storage, desiredStorage(in.Queue.Spec.Storage).WantedReplicas()
	found := fmt.Sprintf("%d of %d replicas", state.Replicas, wanted)
	switch {
	case state.Replicas == 0:
		return isUnknown(unreportedReplicas)
	case state.Replicas < wanted && state.Refusal != "":
		return decision.False(v1alpha1.ReasonReplicasRefused, "The queue has "+found+": "+state.Refusal)
	case state.Replicas < wanted && state.IsMoving:
		return decision.False(v1alpha1.ReasonCatchingUp, "The queue has "+found+", and the broker moves it to other servers")
	case state.Replicas < wanted:
		return decision.False(v1alpha1.ReasonReplicasMissing, "The queue has "+found+"; drift is Warn, so nothing adds more: set it to Correct, or change num_replicas on the broker")
	case state.Replicas == 1:
		return decision.False(v1alpha1.ReasonSingleReplica, "The queue has one replica, as storage.replicas says: its messages are lost with its server")
	case state.CurrentReplicas == 0:
		return isUnknown(unreportedReplicas)
	case state.OfflineReplicas > 0:
		return decision.False(v1alpha1.ReasonReplicasOffline, fmt.Sprintf(
			"%d of %d replicas are online and have all messages; start the servers of the others", state.CurrentReplicas, state.Replicas))
	case state.CurrentReplicas < state.Replicas:
		return decision.False(v1alpha1.ReasonCatchingUp, fmt.Sprintf(
			"%d of %d replicas have all messages", state.CurrentReplicas, state.Replicas))
	}
	return decision.True(v1alpha1.ReasonFullyReplicated, fmt.Sprintf("%d servers have all messages", state.CurrentReplicas))
}
