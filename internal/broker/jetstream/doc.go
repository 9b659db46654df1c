// Package jetstream keeps queues on NATS JetStream.
//
// A queue named orders is, with the priorities high and low:
//
//	stream   yardmaster_orders        the messages; one that is acknowledged is removed
//	  subjects yardmaster.orders.ready.high, yardmaster.orders.ready.low   to send to
//	           yardmaster.orders.delayed.>                   messages that are not yet due
//	  consumers high, low             each with the lease, and a part of maxInFlight
//	stream   yardmaster_orders_dead   the dead letters
//	  subjects yardmaster.orders.dead.>, and the server's word that it gave up on a message
//	bucket   yardmaster_orders        the rate limit and its state; deliveries that were no attempts
//
// Each stored message is announced, without its payload, on yardmaster.orders.arrived.>,
// for Wait: the server sends that only where somebody listens.
//
// The server keeps to the lease, the pause, maxInFlight and maxBacklog. Delays between
// attempts and dead letters are the workers' business: a consumer's own back-off takes the
// place of the lease, and its limit of deliveries counts those too that were handed back
// unused. That limit is set well above the attempts, and what meets it is rescued.
package jetstream
