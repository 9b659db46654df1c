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

// WatchLists watches the objects that the lists and options select. It calls onEvent for each
// event with the time of its arrival, and onEnd when a watch has ended with an error. Both may
// be called concurrently.
//
// A busy API server closes watches of clients that it cannot serve in time. Such a watch is
// resumed where it ended, so that no event is lost or repeated.
func WatchLists(
	ctx context.Context, c *Cluster, onEvent func(watch.Event, time.Time), onEnd func(error),
	lists []client.ObjectList, options ...client.ListOption,
) error {
	for _, list := range lists {
		events, err := c.Watch(ctx, list, options...)
		if err != nil {
			return err
		}
		go func() {
			onEnd(watchList(ctx, c, onEvent, list, options, events))
		}()
	}
	return nil
}

// watchList passes on events until the watch cannot be resumed.
func watchList(
	ctx context.Context, c *Cluster, onEvent func(watch.Event, time.Time),
	list client.ObjectList, options []client.ListOption, events watch.Interface,
) error {
	version := ""
	for {
		for event := range events.ResultChan() {
			if event.Type == watch.Error {
				return fmt.Errorf("watching %T: %w", list, apierrors.FromObject(event.Object))
			}
			if object, ok := event.Object.(metav1.Object); ok {
				version = object.GetResourceVersion()
			}
			onEvent(event, time.Now())
		}
		if version == "" {
			return errors.Join(fmt.Errorf("the watch of %T ended before its first event", list), ctx.Err())
		}
		from := append([]client.ListOption{}, options...)
		var err error
		events, err = c.Watch(ctx, list, append(from, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})...)
		if err != nil {
			return fmt.Errorf("resuming the watch of %T: %w", list, err)
		}
	}
}
