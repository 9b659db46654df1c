package informer

import "k8s.io/apimachinery/pkg/watch"

// drained is a watch that ends when it is stopped, also with an event on its way that nobody
// takes any more: one that passes on the events of another, as those of metadata alone do,
// waits for ever to be rid of it, and so does its goroutine. What is stopped late often has
// one: that it was cut off.
type drained struct{ watch.Interface }

// Stop implements watch.Interface.
func (d drained) Stop() {
	d.Interface.Stop()
	go func() {
		for range d.ResultChan() {
		}
	}()
}
