package broker

import (
	"context"

	"github.com/yardmaster/yardmaster/internal/broker/jobstate"
)

// CanceledJob is the outcome of CancelStoredJob.
type CanceledJob struct {
	// Removed: no worker has received or will receive the job.
	Removed bool
	// Ended: the job had ended before, in State.
	Ended bool
	// State of the job after the request, unless it was removed.
	State jobstate.State
}

// CancelStoredJob cancels a job. A worker may cancel the job before this function reads its state again, so a canceled job had ended
// only if it was canceled before the request.
func CancelStoredJob(ctx context.Context, store JobStore, queue, id string) (CanceledJob, error) {
	before, err := store.Job(ctx, queue, id)
	if err != nil {
		return CanceledJob{}, err
	}
	removed, err := store.CancelJob(ctx, queue, id)
	if err != nil || removed {
		return CanceledJob{Removed: removed}, err
	}
	after, err := store.Job(ctx, queue, id)
	if err != nil {
		return CanceledJob{}, err
	}
	ended := after.State.IsFinal() && (after.State != jobstate.Canceled || before.State == jobstate.Canceled)
	return CanceledJob{Ended: ended, State: after.State}, nil
}
