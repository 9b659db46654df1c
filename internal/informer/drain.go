package informer

import "k8s.io/apimachinery/pkg/watch"

// drainingWatch reads the remaining events of a watch after Stop. A watch that forwards the events of
// another one, such as a metadata-only watch, otherwise blocks forever on an event that nobody receives
// and leaks its goroutine. A watch whose connection was cut often has such an event.
type drainingWatch struct{ watch.Interface }

// Stop implements watch.Interface.
func (d drainingWatch) Stop() {
	d.Interface.Stop()
	go func() {
		for range d.ResultChan() {
		}
	}()
}
