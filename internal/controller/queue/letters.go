package queue

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/kube"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// seeToLetters does what is asked for with the dead letters, once the queue is known to
// be this Queue's. What it does not get done in its time is done in the next pass.
func (p *pass) seeToLetters(ctx context.Context, engine broker.Engine) error {
	asked := queue.DeadLetterRequest(p.q)
	if asked == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	letters, number := engine.DeadLetters(queue.BrokerQueueName(p.q)), int(p.seen.Figures.DeadLetters)
	var err error
	if asked == queue.RequestRequeue {
		number, err = letters.Requeue(ctx, 0)
	} else {
		err = letters.Purge(ctx)
	}
	if err != nil {
		return err
	}
	p.lettersDone = new(queue.LettersDone(asked, number))
	figures, err := p.line.Stats(ctx, queue.BrokerQueueName(p.q), 0)
	if err == nil {
		p.seen.Figures = &figures
	}
	return err
}

// tellOfLetters takes the request off, so that it is carried out once, and tells.
func (p *pass) tellOfLetters(ctx context.Context) error {
	if p.lettersDone == nil {
		return nil
	}
	q := p.q.DeepCopy()
	err := kube.PatchMetadata(ctx, p.client, q, func(object client.Object) {
		annotations := object.GetAnnotations()
		delete(annotations, queue.AnnotationDeadLetters)
		object.SetAnnotations(annotations)
	})
	if err != nil {
		return fmt.Errorf("taking the annotation off: %w", err)
	}
	p.wrote(q)
	p.emit(*p.lettersDone)
	return nil
}
