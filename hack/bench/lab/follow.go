package lab

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follow watches the objects of each list that the options select, and calls see for each
// event, with the time at which it came. Ended is called when a watch has ended. Both may be
// called by several at once.
func Follow(
	ctx context.Context, c *Cluster, see func(watch.Event, time.Time), ended func(error),
	lists []client.ObjectList, options ...client.ListOption,
) error {
	for _, list := range lists {
		events, err := c.Watch(ctx, list, options...)
		if err != nil {
			return err
		}
		go func() {
			defer events.Stop()
			for event := range events.ResultChan() {
				see(event, time.Now())
			}
			ended(errors.New("a watch ended"))
		}()
	}
	return nil
}
