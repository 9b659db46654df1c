package jetstream

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

type keyWatch struct {
	watcher jetstream.KeyWatcher
	stop    context.CancelFunc
	done    chan struct{}
}

// watchKeys calls handle for each current and later value of the keys, and returns after the current values.
func (s *queueSubscription) watchKeys(
	ctx context.Context, operation string, bucket jetstream.KeyValue, keys string, handle func(jetstream.KeyValueEntry), options ...jetstream.WatchOpt,
) (*keyWatch, error) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	watcher, err := bucket.Watch(watching, keys, options...)
	if err != nil {
		stop()
		return nil, s.classifyError(operation, err)
	}
	w, known := &keyWatch{watcher, stop, make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(w.done)
		for entry := range watcher.Updates() {
			if entry == nil { // the current values were received
				close(known)
				continue
			}
			handle(entry)
		}
	}()
	select {
	case <-known:
		return w, nil
	case <-ctx.Done():
		w.Stop()
		return nil, s.classifyError(operation, ctx.Err())
	}
}

// Stop ends the watch.
func (w *keyWatch) Stop() {
	_ = w.watcher.Stop()
	w.stop()
	<-w.done
}
