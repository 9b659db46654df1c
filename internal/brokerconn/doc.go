// Package connection keeps the connections to brokers, for all controllers together.
//
// A Keeper has a Line for each broker that an object refers to. A Line reads the Secrets
// of its reference, by name and live, connects, and from then on looks every few seconds
// whether the broker is there, so that a thousand queues need not. It connects anew when
// the broker was lost or a Secret has changed, and it is closed when nobody asks for it
// any more. Nobody waits for a connection: who asks is told how it stands, and whoever
// listens is told when that changes.
//
// What is asked of one queue by several controllers is asked of the broker once: its
// figures, and to be told of the next message.
package brokerconn
