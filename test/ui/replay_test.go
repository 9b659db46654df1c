//go:build bench

package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// replay answers requests for the SequentialJobs of a namespace instead of the API server, whose writes need more processor
// time than the page: with 5,000 objects, of which it changes 100 a second. Ten of these changes are of the probe.
type replay struct {
	objects []*v1alpha1.SequentialJob
	ns      string

	mu      sync.Mutex
	version int
	changes int
	// probes are the times at which the probe was changed.
	probes []time.Time
}

// newReplay copies objects of the API server, as it returns them.
func newReplay(t *testing.T, ns string) *replay {
	t.Helper()
	running, failed := runningSequence(t, ns, "running"), failedSequence(t, ns, "failed", "container migrate exited with code 3: there is no migration to version 8", "schema=5")
	r := &replay{ns: ns, version: 1000}
	for i := range 5000 {
		object := running.DeepCopy()
		if i%20 == 0 {
			object = failed.DeepCopy()
		}
		object.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SequentialJob"}
		object.Name, object.UID = fmt.Sprintf("etl-%04d", i), types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))
		r.objects = append(r.objects, object)
	}
	return r
}

// serve answers a request, if it is about the SequentialJobs.
func (r *replay) serve(w http.ResponseWriter, request *http.Request) bool {
	if r == nil || !strings.HasSuffix(request.URL.Path, "/namespaces/"+r.ns+"/sequentialjobs") {
		return false
	}
	query := request.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	if query.Get("watch") == "" {
		list := &v1alpha1.SequentialJobList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "SequentialJobList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1000"}}
		for _, object := range r.objects {
			list.Items = append(list.Items, *object)
		}
		send(encoder, list)
		return true
	}
	if query.Get("sendInitialEvents") == "true" {
		for _, object := range r.objects {
			send(encoder, event("ADDED", object))
		}
		end := &v1alpha1.SequentialJob{TypeMeta: r.objects[0].TypeMeta, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1000", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		send(encoder, event("BOOKMARK", end))
	}
	r.change(request, encoder, w.(http.Flusher))
	return true
}

// send reports whether the client still reads.
func send(encoder *json.Encoder, object any) bool {
	err := encoder.Encode(object)
	return err == nil
}

func event(kind string, object any) any {
	return map[string]any{"type": kind, "object": object}
}

// change changes objects until the request ends, each 10 ms one.
func (r *replay) change(request *http.Request, encoder *json.Encoder, flusher http.Flusher) {
	const perSecond, probeEach = 100, 10
	flusher.Flush()
	begin := time.Now()
	for i := 0; request.Context().Err() == nil; i++ {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / perSecond)))
		r.mu.Lock()
		number := 2 + i%4998
		if i%probeEach == 0 {
			number = 1
		}
		object := r.objects[number].DeepCopy()
		for j := range object.Status.Steps {
			object.Status.Steps[j].Phase = v1alpha1.StepPending
			if j < i%4 {
				object.Status.Steps[j].Phase = v1alpha1.StepSucceeded
			}
		}
		if number == 1 {
			object.Status.Reason = fmt.Sprintf("Probe%dx", len(r.probes))
			r.probes = append(r.probes, time.Now())
		}
		r.version++
		r.changes++
		object.ResourceVersion = fmt.Sprint(r.version)
		r.mu.Unlock()
		if !send(encoder, event("MODIFIED", object)) {
			return
		}
		flusher.Flush()
	}
}

// count returns how many changes there were, and when those of the probe were.
func (r *replay) count() (int, []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes, append([]time.Time{}, r.probes...)
}
