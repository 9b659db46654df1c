package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/test/assert"
	"github.com/yardmaster/yardmaster/test/require"
)

// eventReader lists two warnings about each of some Pods of a namespace, in pages.
type eventReader struct {
	client.Reader
	pods, requests int
}

func (r *eventReader) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	r.requests++
	start, events := 0, list.(*eventsv1.EventList)
	if _, err := fmt.Sscan(asked.Continue, &start); err != nil {
		start = 0
	}
	uid, isOne := asked.FieldSelector.RequiresExactMatch("regarding.uid")
	for n := start; n < 2*r.pods; n++ {
		if len(events.Items) == int(asked.Limit) {
			events.Continue = fmt.Sprint(n)
			break
		}
		pod := types.UID(fmt.Sprint("pod", n/2))
		if !isOne || uid == string(pod) {
			at := metav1.NewMicroTime(time.Unix(int64(100-n%2), 0)) // the newest is the first
			events.Items = append(events.Items, eventsv1.Event{Regarding: corev1.ObjectReference{UID: pod}, Note: fmt.Sprint("message ", n), EventTime: at})
		}
	}
	return nil
}

func TestStepsOfANamespaceShareAListOfItsWarnings(t *testing.T) {
	for title, test := range map[string]struct{ pods, asks, requests, answers, namespaces int }{
		"an object each of two namespaces":           {pods: 2, asks: 2, requests: 2, answers: 2, namespaces: 2},
		"a hundred objects that wait":                {pods: 100, asks: 100, requests: 1, answers: 100},
		"an object of the second page":               {pods: 400, asks: 1, requests: 2, answers: 1},
		"an object beyond the list":                  {pods: 600, asks: 1, requests: 3, answers: 1},
		"more objects beyond the list than requests": {pods: 3000, asks: 2000, requests: 2 + warningListBurst - 1, answers: warningListBurst - 1},
	} {
		t.Run(title, func(t *testing.T) {
			events := &eventReader{pods: test.pods}
			r := newWarningReader(events)
			r.limiter.SetLimit(0) // the burst alone
			answered := 0
			for n := range test.asks {
				pod := test.pods - 1 - n
				got, err := r.newest(t.Context(), fmt.Sprint("team", n%max(test.namespaces, 1)), types.UID(fmt.Sprint("pod", pod)))
				require.NoError(t, err)
				if got != "" {
					answered++
				}
				want := fmt.Sprint("message ", 2*pod)
				require.True(t, got == "" || got == want, "message %q, want the newest: %q", got, want)
			}
			assert.Equal(t, "number of answers", test.answers, answered)
			assert.Equal(t, "number of requests", test.requests, events.requests)
		})
	}
}
