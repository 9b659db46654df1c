package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube/metric"
)

const queueLabel = "queue"

var (
	driftCorrections = metric.NewObjectCounter("yardmaster_queue_drift_corrections_total",
		"Number of times that the operator changed the configuration of a queue on its broker back to the spec.", queueLabel)
	delayedErasures = metric.NewObjectCounter("yardmaster_queue_delayed_erasures_total",
		"Number of times that the operator found the delayed messages of a queue erased by someone else.", queueLabel)
	rescuedMessages = metric.NewObjectCounter("yardmaster_queue_rescued_messages_total",
		"Number of messages that became dead letters because the broker stopped delivering them.", queueLabel)
	messagesGauge = metric.NewSum("yardmaster_queue_messages",
		"Messages in a queue by state, as last reported by its broker.", "namespace", queueLabel, "state")
	queuesGauge = metric.NewSum("yardmaster_queue_queues",
		"Queues by status and reason of their condition Ready.", "namespace", queueLabel, "ready", "reason")
	replicationGauge = metric.NewSum("yardmaster_queue_replication",
		"Queues by status and reason of their condition Replicated.", "namespace", queueLabel, "status", "reason")
)

func sumStatuses(sums metric.Sums, list *v1alpha1.QueueList) {
	for i := range list.Items {
		q := &list.Items[i]
		name := metric.ObjectName(q)
		for state, number := range map[string]*int64{
			"ready": q.Status.Backlog, "in_flight": q.Status.InFlight, "delayed": q.Status.Delayed, "dead": q.Status.Dead,
			"stranded": q.Status.Stranded,
		} {
			if number != nil {
				sums.Add(messagesGauge, *number, q.Namespace, name, state)
			}
		}
		sums.AddCondition(queuesGauge, q.Status.Conditions, v1alpha1.ConditionReady, q.Namespace, name)
		sums.AddCondition(replicationGauge, q.Status.Conditions, v1alpha1.ConditionReplicated, q.Namespace, name)
	}
}
