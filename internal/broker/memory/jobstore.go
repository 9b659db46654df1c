package memory

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

// start records that a job runs.
func (q *queue) start(t *Taken, now time.Time) {
	q.running[t.ID] = t
	q.setState(&jobstate.Info{
		ID: t.ID, State: jobstate.Running, Kind: t.Kind, Priority: t.Priority, Attempt: t.Attempt, MaxAttempts: t.MaxAttempts,
		StartTime: now, UpdateTime: now,
	})
	if sent, found := q.cancels[t.ID]; found && !t.SentTime.After(sent) {
		close(t.canceled)
	}
}

// end records how an attempt has ended.
func (q *queue) end(t *Taken, now time.Time, change func(*jobstate.Info)) {
	if q.running[t.ID] == t {
		delete(q.running, t.ID)
	}
	info := q.states[t.ID]
	info.UpdateTime = now
	change(&info)
	if info.State.IsFinal() {
		delete(q.cancels, t.ID)
	}
	q.setState(&info)
}

func (q *queue) setState(info *jobstate.Info) {
	if q.config.Results.IsEnabled() {
		q.states[info.ID] = *info
	}
}

// Canceled is closed when somebody cancels the job.
func (t *Taken) Canceled() <-chan struct{} { return t.canceled }

// IsCanceled reports whether somebody has canceled the job.
func (t *Taken) IsCanceled() bool {
	select {
	case <-t.canceled:
		return true
	default:
		return false
	}
}

// Cancel records that the job ended because it was canceled.
func (t *Taken) Cancel() {
	t.broker.mu.Lock()
	defer t.broker.mu.Unlock()
	t.queue.end(t, t.broker.now(), func(info *jobstate.Info) { info.State = jobstate.Canceled })
}

// Finish records that the job is done.
func (t *Taken) Finish(result json.RawMessage) {
	t.broker.mu.Lock()
	defer t.broker.mu.Unlock()
	t.queue.end(t, t.broker.now(), func(info *jobstate.Info) { info.State, info.Result, info.Error = jobstate.Done, result, "" })
}

// openStore returns a queue that keeps the states of its jobs. The caller holds the lock.
func (c *connection) openStore(ctx context.Context, name string) (*queue, error) {
	b := c.broker
	if err := b.checkAvailable(ctx); err != nil {
		return nil, err
	}
	q := b.queues[name]
	switch {
	case q == nil:
		return nil, unknownQueue(name)
	case !q.config.Results.IsEnabled():
		return nil, broker.UnsupportedField("queue", "keeps no state of jobs: set Results of the queue %s", name)
	}
	for id, state := range q.states {
		if state.State.IsFinal() && b.now().Sub(state.UpdateTime) > q.config.Results.Retention {
			delete(q.states, id)
		}
	}
	return q, nil
}

// Job implements broker.JobStore. The queue has an index of its jobs.
func (c *connection) Job(ctx context.Context, name, id string) (jobstate.Info, error) {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	q, err := c.openStore(ctx, name)
	if err != nil {
		return jobstate.Info{}, err
	}
	return q.info(id), nil
}

func (q *queue) info(id string) jobstate.Info {
	info, found := q.states[id]
	if i := slices.IndexFunc(q.jobs, func(job *storedJob) bool { return job.ID == id }); i >= 0 && (!found || info.State.IsFinal()) {
		job := q.jobs[i]
		info = jobstate.Info{ID: id, State: jobstate.Waiting, Kind: job.Kind, Priority: job.Priority, NextTime: job.due}
	} else if !found {
		info = jobstate.Info{ID: id, State: jobstate.Unknown}
	}
	_, info.CancelRequested = q.cancels[id]
	return info
}

// ListJobs implements broker.JobStore.
func (c *connection) ListJobs(ctx context.Context, name string, states []jobstate.State, limit int) (broker.JobList, error) {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	q, err := c.openStore(ctx, name)
	if err != nil {
		return broker.JobList{}, err
	}
	var list broker.JobList
	for id := range q.states {
		if info := q.info(id); slices.Contains(states, info.State) {
			list.Jobs = append(list.Jobs, info)
		}
	}
	slices.SortFunc(list.Jobs, func(a, b jobstate.Info) int { return b.UpdateTime.Compare(a.UpdateTime) })
	if len(list.Jobs) > limit {
		list.Jobs, list.Omitted = list.Jobs[:limit], true
	}
	return list, nil
}

// CancelJob implements broker.JobStore.
func (c *connection) CancelJob(ctx context.Context, name, id string) (removed bool, err error) {
	job, err := c.cancelJob(ctx, name, id)
	if job == nil {
		return false, err
	}
	return true, c.broker.endKeys(ctx, name, job)
}

// cancelJob returns the job if it was delayed, and is removed.
func (c *connection) cancelJob(ctx context.Context, name, id string) (*storedJob, error) {
	b := c.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	q, err := c.openStore(ctx, name)
	if err != nil {
		return nil, err
	}
	now := b.now()
	if job := q.removeDelayed(id, now); job != nil {
		q.setState(&jobstate.Info{ID: id, State: jobstate.Canceled, Kind: job.Kind, Priority: job.Priority, UpdateTime: now})
		return job, nil
	}
	q.cancels[id] = now
	if running := q.running[id]; running != nil && !running.IsCanceled() {
		close(running.canceled)
	}
	return nil, nil //nolint:nilnil // nil means that no job was removed
}

// RecordWaiting implements broker.JobStore: the queue has an index of its jobs.
func (*connection) RecordWaiting(context.Context, *broker.OutgoingJob, broker.SendResult) error {
	return nil
}
