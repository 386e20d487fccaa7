// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

namespace xsock::readiness {

template <typename T>
class IntrusiveList;

/// Base of what can be in one IntrusiveList<T> at a time.
template <typename T>
class ListLink {
    friend class IntrusiveList<T>;
    T* next_ = nullptr;
    T* previous_ = nullptr;
    bool linked_ = false;
};

/// Links objects that their owners keep: nothing is allocated, and each is taken out in O(1). One
/// thread at a time.
template <typename T>
class IntrusiveList {
    using Link = ListLink<T>;

  public:
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    [[nodiscard]] T* front() const noexcept { return first_; }
    [[nodiscard]] static T* next(const Link& link) noexcept { return link.next_; }
    /// Is it in a list?
    [[nodiscard]] static bool linked(const Link& link) noexcept { return link.linked_; }

    /// @pre it is in no list
    void push_front(T& item) noexcept { insert(item, nullptr, first_); }
    void push_back(T& item) noexcept { insert(item, last_, nullptr); }
    /// True: it was in this list.
    bool remove(T& item) noexcept {
        Link& link = item;
        if (!link.linked_) return false;
        (link.previous_ != nullptr ? as_link(*link.previous_).next_ : first_) = link.next_;
        (link.next_ != nullptr ? as_link(*link.next_).previous_ : last_) = link.previous_;
        link = {};
        return true;
    }
    /// Null: empty.
    T* pop_front() noexcept {
        T* const item = first_;
        if (item != nullptr) remove(*item);
        return item;
    }

  private:
    static Link& as_link(T& item) noexcept { return item; }
    void insert(T& item, T* previous, T* next) noexcept {
        Link& link = item;
        link.next_ = next;
        link.previous_ = previous;
        link.linked_ = true;
        (previous != nullptr ? as_link(*previous).next_ : first_) = &item;
        (next != nullptr ? as_link(*next).previous_ : last_) = &item;
    }

    T* first_ = nullptr;
    T* last_ = nullptr;
};

}  // namespace xsock::readiness
