// Package jetstream keeps queues on NATS JetStream.
//
// A queue named orders with the priorities high and low consists of:
//
//	stream   yardmaster_orders        the messages; an acknowledged message is deleted
//	  subjects yardmaster.orders.ready.high, yardmaster.orders.ready.low   for producers
//	           yardmaster.orders.delayed.>                   messages that are not due yet
//	  consumers high, low             each with the lease, and its share of maxInFlight
//	stream   yardmaster_orders_dead   the dead letters
//	  subjects yardmaster.orders.dead.>
//	bucket   yardmaster_orders        the rate limit and its state; releases of messages
//
// For WaitForMessage, the server republishes each stored message without its payload on yardmaster.orders.arrived.>, if there is a
// subscriber.
//
// The server enforces the lease, the pause, maxInFlight and maxBacklog. Workers enforce the delay between attempts, and write dead
// letters: the backoff of a JetStream consumer replaces its lease, and MaxDeliver counts released messages too. So the server
// delivers a message without a limit, until a worker acknowledges or buries it. Messages that a server stops delivering, because
// someone set a limit, are rescued.
package jetstream
