package asynq

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"

	"github.com/yardmaster/yardmaster/internal/broker/jobkeys"
)

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

// endKeys releases what a task holds that was canceled before a worker received it.
func (e *Engine) endKeys(ctx context.Context, queue string, task *asynq.TaskInfo) error {
	return jobkeys.EndCanceled(ctx, e, queue, jobID(task.Headers, task.ID), messageHeaders(task.Type, task.Headers))
}

// isTaskGone reports that a task does not exist.
func isTaskGone(err error) bool {
	return errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound)
}
