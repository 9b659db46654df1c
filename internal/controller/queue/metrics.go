package queue

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/metric"
)

var (
	driftCorrections = metric.NewCounter("yardmaster_queue_drift_corrections_total",
		"Number of times that the operator changed the configuration of a queue on its broker back to the spec.")
	rescuedMessages = metric.NewCounter("yardmaster_queue_rescued_messages_total",
		"Number of messages that became dead letters because the broker stopped delivering them.")
	messagesGauge = metric.NewSum("yardmaster_queue_messages",
		"Messages in all queues of a namespace, by state, as last reported by the brokers.", "namespace", "state")
	queuesGauge = metric.NewSum("yardmaster_queue_queues",
		"Queues of a namespace by status and reason of their condition Ready.", "namespace", "ready", "reason")
	replicationGauge = metric.NewSum("yardmaster_queue_replication",
		"Queues of a namespace by status and reason of their condition Replicated.", "namespace", "status", "reason")
)

func sumStatuses(sums metric.Sums, list *v1alpha1.QueueList) {
	for i := range list.Items {
		q := &list.Items[i]
		for state, number := range map[string]*int64{
			"ready": q.Status.Ready, "in_flight": q.Status.InFlight, "delayed": q.Status.Delayed, "dead": q.Status.Dead,
			"stranded": q.Status.Stranded,
		} {
			if number != nil {
				sums.Add(messagesGauge, *number, q.Namespace, state)
			}
		}
		sums.AddReady(queuesGauge, q, q.Status.Conditions)
		sums.AddCondition(replicationGauge, q, q.Status.Conditions, v1alpha1.ConditionReplicated)
	}
}
