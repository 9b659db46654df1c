package render

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/plugin/terminal"
	"github.com/yardmaster/yardmaster/test/require"
)

func TestQueueTable(t *testing.T) {
	mail := &v1alpha1.Queue{
		ObjectMeta: metav1.ObjectMeta{Name: "mail", Namespace: "data", CreationTimestamp: metav1.Time{Time: startTime}},
		Status: v1alpha1.QueueStatus{
			Engine: v1alpha1.EngineNATS, MessageCounts: v1alpha1.MessageCounts{Backlog: new(int64(12)), InFlight: new(int64(0)), WaitP95: &metav1.Duration{Duration: 250 * time.Millisecond}}, Dead: new(int64(3)),
			OldestTime:     &metav1.Time{Time: startTime.Add(time.Minute)},
			ObservedStatus: v1alpha1.ObservedStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConnectionFailed}}},
		},
	}
	withoutStatus := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "data"}}
	deleted := mail.DeepCopy()
	deleted.Name, deleted.DeletionTimestamp = "old", &metav1.Time{Time: startTime}
	want := []string{
		"NAMESPACE   NAME   STATUS             BACKLOG   IN FLIGHT   DELAYED   DEAD   OLDEST   P95 WAIT   ENGINE   AGE",
		"data        mail   ConnectionFailed   12        0           -         3      60s      250ms      NATS     2m",
		"data        new    Pending            -         -           -         -      -        -          -",
		"data        old    Deleting           12        0           -         3      60s      250ms      NATS     2m",
	}
	got := QueueTable(terminal.Style{}, []*v1alpha1.Queue{mail, withoutStatus, deleted}, startTime.Add(2*time.Minute)).Lines(true)
	require.Equal(t, want, got)
}
