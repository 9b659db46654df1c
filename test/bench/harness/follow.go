package harness

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WatchLists watches the objects of each list that the options select, and calls see for each
// event, with the time at which it came. Ended is called when a watch has ended for good. Both
// may be called by several at once.
//
// An API server that has much to do ends a watch whose events it cannot get rid of in time.
// It goes on then where it ended: nothing is missed, or told twice.
func WatchLists(
	ctx context.Context, c *Cluster, see func(watch.Event, time.Time), ended func(error),
	lists []client.ObjectList, options ...client.ListOption,
) error {
	for _, list := range lists {
		events, err := c.Watch(ctx, list, options...)
		if err != nil {
			return err
		}
		go func() {
			ended(watchList(ctx, c, see, list, options, events))
		}()
	}
	return nil
}

// watchList passes events on until they end, and cannot be had any more.
func watchList(
	ctx context.Context, c *Cluster, see func(watch.Event, time.Time),
	list client.ObjectList, options []client.ListOption, events watch.Interface,
) error {
	version := ""
	for {
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				return fmt.Errorf("watching %T: %w", list, apierrors.FromObject(event.Object))
			}
			if object, is := event.Object.(metav1.Object); is {
				version = object.GetResourceVersion()
			}
			see(event, time.Now())
		}
		if version == "" {
			return errors.Join(fmt.Errorf("a watch of %T ended before there was anything", list), ctx.Err())
		}
		from := append([]client.ListOption{}, options...)
		var err error
		events, err = c.Watch(ctx, list, append(from, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})...)
		if err != nil {
			return fmt.Errorf("watching %T again: %w", list, err)
		}
	}
}
