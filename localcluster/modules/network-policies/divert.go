package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
)

const tableName = "network-policies"

// divert makes the kernel queue the first packet of each connection that a Pod opens:
// after kube-proxy has replaced the address of a Service by that of a Pod, since policies
// refer to Pods; and before routing, so that one place serves Pods and the node alike.
// Traffic from the node to its Pods is always allowed, and bypasses the queue.
func divert(pods netip.Prefix) error {
	// Most kernels have the first, but not those of small virtual machines.
	var failures []error
	for _, queue := range []expr.Any{
		&expr.Queue{Num: queueNumber},
		&expr.Target{Name: "NFQUEUE", Info: queueInfo()},
	} {
		err := replaceTable(pods, queue)
		if err == nil {
			return nil
		}
		failures = append(failures, fmt.Errorf("with %T: %w", queue, err))
	}
	return errors.Join(failures...)
}

// replaceTable is one transaction, so that the rule is never absent.
func replaceTable(pods netip.Prefix, queue expr.Any) error {
	connection, err := nftables.New()
	if err != nil {
		return err
	}
	table := connection.AddTable(&nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4})
	connection.DelTable(table) // an earlier process's; deleting a missing table would be an error
	connection.AddTable(table)
	chain := connection.AddChain(&nftables.Chain{
		Name:     "prerouting",
		Table:    table,
		Type:     nftables.ChainTypeFilter,
		Hooknum:  nftables.ChainHookPrerouting,
		Priority: new(*nftables.ChainPriorityNATDest + 5),
	})
	connection.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(newFrom(pods), queue)})
	return connection.Flush()
}

// newFrom matches packets of new connections from these addresses.
func newFrom(pods netip.Prefix) []expr.Any {
	const register, source, length = 1, 12, 4
	network := pods.Masked().Addr().As4()
	none := make([]byte, length)
	return []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: source, Len: length},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: length, Mask: net.CIDRMask(pods.Bits(), 32), Xor: none},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: network[:]},
		&expr.Ct{Key: expr.CtKeySTATE, Register: register},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: length, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW), Xor: none},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: none},
	}
}

// queueInfo is struct xt_NFQ_info, padded as the kernel requires.
func queueInfo() xt.InfoAny {
	info := xt.Unknown(make([]byte, 8))
	binary.NativeEndian.PutUint16(info, queueNumber)
	return &info
}
