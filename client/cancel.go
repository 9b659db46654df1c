package client

import (
	"context"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// CancelDelayed removes a job that was sent with Delay or At and is not due yet, so that it never runs. It returns
// false if the queue has no such job: it is due, running, done or dead, or was never sent. On JetStream, also one that is
// due within a second is not canceled, and the queue still recognizes the ID of a canceled job for two minutes after it
// was sent.
//
// The error is an *Error. If its reason is ErrUnavailable, the job may be canceled or not.
func (c *Client) CancelDelayed(ctx context.Context, queue, id string) (canceled bool, err error) {
	if err := broker.ValidateJobReference(queue, id); err != nil {
		return false, newOperationError("canceling a job of", queue, id, err)
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return false, newOperationError("canceling a job of", queue, id, err)
	}
	defer end()
	canceled, err = c.producer.CancelDelayed(ctx, queue, id)
	return canceled, newOperationError("canceling a job of", queue, id, err)
}
