package asynq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

const (
	cancelRetention = time.Hour
	// maxCancelTries bounds how often CancelJob looks up a task that changes its state meanwhile.
	maxCancelTries = 10
)

// Job implements broker.JobStore. asynq itself keeps the state of each task.
func (e *Engine) Job(ctx context.Context, queue, id string) (jobstate.Info, error) {
	if err := e.requireQueue(ctx, queue); err != nil {
		return jobstate.Info{}, err
	}
	task, err := e.inspector.GetTaskInfo(queue, id)
	isGone := isTaskGone(err)
	if err != nil && !isGone {
		return jobstate.Info{}, sendError(queue, err)
	}
	if isGone || task.State == asynq.TaskStateCompleted {
		canceled, lookUp := e.client.Exists(ctx, recordKey(queue, canceledPart, id)).Result()
		switch {
		case lookUp != nil:
			return jobstate.Info{}, sendError(queue, lookUp)
		case canceled > 0:
			return jobstate.Info{ID: id, State: jobstate.Canceled}, nil
		case isGone:
			return jobstate.Info{ID: id, State: jobstate.Unknown}, nil
		}
	}
	info := infoOf(task)
	if !info.State.IsFinal() {
		info.CancelRequested, err = e.client.HExists(ctx, recordKey(queue, cancelsPart), id).Result()
	}
	return info, sendError(queue, err)
}

func (e *Engine) requireQueue(ctx context.Context, queue string) error {
	known, err := e.client.SIsMember(ctx, queuesKey, queue).Result()
	if err == nil && !known {
		return broker.UnknownQueue(queue)
	}
	return sendError(queue, err)
}

func infoOf(task *asynq.TaskInfo) jobstate.Info {
	info := jobstate.Info{
		ID: jobID(task.Headers, task.ID), State: jobstate.Unknown, Kind: task.Type, Priority: broker.DefaultPriority,
		Attempt: task.Retried, MaxAttempts: task.MaxRetry + 1, Error: task.LastErr,
	}
	switch task.State {
	case asynq.TaskStateActive:
		info.Attempt++
		if !task.IsOrphaned {
			info.State = jobstate.Running
		}
	case asynq.TaskStatePending, asynq.TaskStateAggregating:
		info.State = jobstate.Waiting
		if task.Retried > 0 {
			info.State = jobstate.Retrying
		}
	case asynq.TaskStateScheduled:
		info.State, info.NextTime = jobstate.Waiting, task.NextProcessAt
	case asynq.TaskStateRetry:
		info.State, info.NextTime = jobstate.Retrying, task.NextProcessAt
	case asynq.TaskStateArchived:
		info.State, info.UpdateTime, info.Attempt = jobstate.Dead, task.LastFailedAt, task.Retried+1
	case asynq.TaskStateCompleted:
		info.State, info.UpdateTime, info.Attempt, info.Error = jobstate.Done, task.CompletedAt, task.Retried+1, ""
		if json.Valid(task.Result) { // a worker of another project may have written anything
			info.Result = task.Result
		}
	}
	return info
}

// RecordWaiting implements broker.JobStore: asynq has an index of its tasks.
func (*Engine) RecordWaiting(context.Context, *broker.OutgoingJob, broker.SendResult) error {
	return nil
}

// CancelJob implements broker.JobStore. asynq refuses to delete a task that a worker has received.
func (e *Engine) CancelJob(ctx context.Context, queue, id string) (removed bool, err error) {
	if err := e.requireQueue(ctx, queue); err != nil {
		return false, err
	}
	for range maxCancelTries {
		task, err := e.inspector.GetTaskInfo(queue, id)
		switch {
		case hasTaskEnded(task, err):
			return false, nil
		case err != nil:
			return false, sendError(queue, err)
		case task.State == asynq.TaskStateActive:
			cancels := recordKey(queue, cancelsPart)
			err := e.client.HSet(ctx, cancels, id, time.Now().UnixMilli()).Err()
			if err == nil {
				err = e.client.Expire(ctx, cancels, cancelRetention).Err()
			}
			return false, sendError(queue, err)
		}
		if err := e.inspector.DeleteTask(queue, id); err == nil {
			if err := e.endKeys(ctx, queue, task); err != nil {
				return false, err
			}
			return true, sendError(queue, e.recordCanceled(ctx, queue, id))
		}
	}
	return false, &broker.SendError{Failure: broker.ErrUnavailable, Err: errors.New("the job changes its state again and again")}
}

func (e *Engine) recordCanceled(ctx context.Context, queue, id string) error {
	return e.client.Set(ctx, recordKey(queue, canceledPart, id), "1", cancelRetention).Err()
}

// CancelDelayed implements broker.Producer. asynq refuses to delete a task that a worker has received.
func (e *Engine) CancelDelayed(ctx context.Context, queue, id string) (bool, error) {
	if err := e.requireQueue(ctx, queue); err != nil {
		return false, err
	}
	task, err := e.inspector.GetTaskInfo(queue, id)
	if isTaskGone(err) || err == nil && task.State != asynq.TaskStateScheduled {
		return false, nil
	}
	if err == nil {
		err = e.inspector.DeleteTask(queue, id)
	}
	if isTaskGone(err) {
		return false, nil
	}
	if err != nil {
		return false, sendError(queue, err)
	}
	return true, e.endKeys(ctx, queue, task)
}

// endKeys releases the keys of a task that was canceled before a worker received it.
func (e *Engine) endKeys(ctx context.Context, queue string, task *asynq.TaskInfo) error {
	return jobkeys.EndCanceled(ctx, e, queue, jobID(task.Headers, task.ID), messageHeaders(task.Type, task.Headers))
}

// hasTaskEnded reports whether no attempt of a task follows, according to the answer of the inspector.
func hasTaskEnded(task *asynq.TaskInfo, err error) bool {
	return isTaskGone(err) || err == nil && (task.State == asynq.TaskStateArchived || task.State == asynq.TaskStateCompleted)
}

func isTaskGone(err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound)
}

// ListJobs implements broker.JobStore.
func (e *Engine) ListJobs(ctx context.Context, queue string, states []jobstate.State, limit int) (list broker.JobList, err error) {
	if err := e.requireQueue(ctx, queue); err != nil {
		return list, err
	}
	type lister = func(queue string, options ...asynq.ListOption) ([]*asynq.TaskInfo, error)
	i := e.inspector
	listers := map[jobstate.State][]lister{
		jobstate.Running:  {i.ListActiveTasks},
		jobstate.Waiting:  {i.ListPendingTasks, i.ListScheduledTasks},
		jobstate.Retrying: {i.ListPendingTasks, i.ListRetryTasks},
		jobstate.Dead:     {i.ListArchivedTasks},
		jobstate.Done:     {i.ListCompletedTasks},
	}
	seen := map[string]bool{}
	for _, state := range states {
		for _, listTasks := range listers[state] {
			page, err := listTasks(queue, asynq.PageSize(limit+1))
			if err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
				return list, sendError(queue, err)
			}
			for _, task := range page {
				if info := infoOf(task); slices.Contains(states, info.State) && !seen[task.ID] {
					seen[task.ID] = true
					list.Jobs = append(list.Jobs, info)
				}
			}
		}
	}
	slices.SortStableFunc(list.Jobs, func(a, b jobstate.Info) int {
		return cmp.Or(b.UpdateTime.Compare(a.UpdateTime), cmp.Compare(a.ID, b.ID))
	})
	if len(list.Jobs) > limit {
		list.Jobs, list.Omitted = list.Jobs[:limit], true
	}
	return list, nil
}
