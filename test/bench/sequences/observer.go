package main

import (
	"context"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/sequentialjob"
	"github.com/yardmaster/yardmaster/test/bench/harness"
)

// jobObserver watches the Jobs of a namespace. A transition is the time from the event that
// shows the end of a Job to the event that shows the sequence's next Job. Both events come
// through the same watch, so its delay cancels out.
type jobObserver struct {
	mu           sync.Mutex
	lastJobEnd   map[string]time.Time // by sequence
	finishedJobs map[string]bool      // by Job
	transitions  []time.Duration
	lastEnd      time.Time
}

func startObserver(ctx context.Context, c *harness.Cluster, ns string) (*jobObserver, error) {
	events, err := c.Watch(ctx, &batchv1.JobList{}, client.InNamespace(ns))
	if err != nil {
		return nil, err
	}
	o := &jobObserver{lastJobEnd: map[string]time.Time{}, finishedJobs: map[string]bool{}}
	go func() {
		defer events.Stop()
		for event := range events.ResultChan() {
			if job, ok := event.Object.(*batchv1.Job); ok {
				o.recordJob(job, event.Type, time.Now())
			}
		}
	}()
	return o, nil
}

func (o *jobObserver) recordJob(job *batchv1.Job, kind watch.EventType, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	owner := job.Labels[labelSequence] + job.Labels[v1alpha1.LabelSequentialJob]
	switch {
	case kind == watch.Added:
		if ended, ok := o.lastJobEnd[owner]; ok {
			o.transitions = append(o.transitions, now.Sub(ended))
		}
	case kind == watch.Modified && sequentialjob.IsTerminal(job) && !o.finishedJobs[job.Name]:
		o.finishedJobs[job.Name] = true
		o.lastJobEnd[owner], o.lastEnd = now, now
	}
}

// finishedCount returns the number of Jobs that have ended.
func (o *jobObserver) finishedCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.finishedJobs)
}

func (o *jobObserver) transitionResults() (transitions []time.Duration, last time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.transitions, o.lastEnd
}
