package queue

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/broker"
)

func TestAQueueOwnsWhatItsBrokerConfirmedLast(t *testing.T) {
	own, other := &v1alpha1.Broker{Engine: v1alpha1.EngineNATS}, &v1alpha1.Broker{Engine: v1alpha1.EngineAsynq}
	on := func(b *v1alpha1.Broker) func(*Observation) {
		return func(o *Observation) { o.Effective.Broker = b }
	}
	unreachable := withoutConnection(v1alpha1.ReasonConnectionFailed)
	refused := failedWith(broker.Errorf(broker.ClassInvalid, "no"))
	for title, row := range map[string]struct {
		reconciliations [][]func(*Observation)
		broker          *v1alpha1.Broker
		want            bool
	}{
		"nothing before its first reconciliation":     {nil, own, false},
		"the queue that the broker compared":          {[][]func(*Observation){{on(own)}}, own, true},
		"the same while the broker does not answer":   {[][]func(*Observation){{on(own)}, {on(own), unreachable}}, own, true},
		"the same while the broker refuses a change":  {[][]func(*Observation){{on(own)}, {on(own), refused}}, own, true},
		"nothing if the broker has never answered":    {[][]func(*Observation){{on(own), unreachable}}, own, false},
		"nothing if the broker refused the queue":     {[][]func(*Observation){{on(own), refused}}, own, false},
		"nothing on another broker yet":               {[][]func(*Observation){{on(own)}}, other, false},
		"nothing on the operator's broker yet":        {[][]func(*Observation){{on(own)}}, nil, false},
		"nothing on another broker that is down":      {[][]func(*Observation){{on(own)}, {on(other), unreachable}}, other, false},
		"nothing if another Queue owns the queue":     {[][]func(*Observation){{on(own)}, {on(own), ownedBy(broker.QueueOwner{UID: "0"})}}, own, false},
		"nothing while it is unknown who owns it now": {[][]func(*Observation){{on(own), ownedBy(broker.QueueOwner{UID: "0"})}, {on(own), unreachable}}, own, false},
	} {
		t.Run(title, func(t *testing.T) {
			q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "mail"}}
			for _, changes := range row.reconciliations {
				o := observed(append(changes, func(o *Observation) { o.Queue.Status = q.Status })...)
				q.Status = Decide(o).Status
			}
			if got := OwnsQueue(q, row.broker); got != row.want {
				t.Errorf("owned: %t, want %t; the status is %+v", got, row.want, q.Status)
			}
		})
	}
}
