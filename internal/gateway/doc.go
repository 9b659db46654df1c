// Package gateway is the program `yardmaster gateway`: an HTTP endpoint for producers without a client of the broker.
//
// A request passes these steps, each of which costs more than the previous step: its token is reviewed, its access to the queue is
// reviewed, its namespace gets a share of the memory and the requests, its Queue is read, its body is read, and the broker stores the
// jobs. Reviews and Queues are cached for a short time.
//
// The producer decides nothing about the broker: the gateway sends to the queue and the broker in the Queue, as the operator recorded
// them.
package gateway
